//! The few places where databases spell SQL differently.

/// Rewrites `$n` to `?n`. SQLite numbers `$n` by first appearance, so that `$2 - $1` would silently bind wrongly.
pub(crate) fn sqlite(sql: &str) -> String {
    let sql = &sql.replace("/* in */", "IN").replace("/* end */", "");
    let mut out = String::with_capacity(sql.len());
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        let parameter = c == '$' && chars.peek().is_some_and(char::is_ascii_digit);
        out.push(if parameter { '?' } else { c });
    }
    out
}

/// Rewrites a migration: SQLite's strict tables know INTEGER only, and a table whose key is its order needs no
/// second one.
pub(crate) fn sqlite_schema(sql: &str) -> String {
    sqlite(sql).replace("BIGINT", "INTEGER").replace("/* keyed */", "STRICT, WITHOUT ROWID").replace("/* wide */", "STRICT")
}

/// PostgreSQL has `$n` itself; and its server has the clock that all machines share. A subquery that depends on the row it is
/// compared with is an array there: `IN` would be answered once for every task of the project.
pub(crate) fn postgres(sql: &str) -> String {
    let sql = sql.replace("/* clock */ NULL", "(extract(epoch FROM clock_timestamp()) * 1000)::bigint");
    sql.replace("/* in */ (", "= ANY(ARRAY(").replace("/* end */", ")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_keep_their_numbers() {
        assert_eq!(sqlite("select $2 - $1, '$' from t where a = $12"), "select ?2 - ?1, '$' from t where a = ?12");
    }

    #[test]
    fn tables_are_strict_on_sqlite() {
        assert_eq!(
            sqlite_schema("create table t (a BIGINT primary key) /* keyed */;"),
            "create table t (a INTEGER primary key) STRICT, WITHOUT ROWID;"
        );
    }
}
