//! The differences between the SQL of the databases.

/// Rewrites `$n` to `?n`. SQLite numbers `$n` by first appearance, so that `$2 - $1` would silently bind wrongly.
pub(crate) fn sqlite(sql: &str) -> String {
    let sql = &choose(sql, 0);
    let mut out = String::with_capacity(sql.len());
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        let parameter = c == '$' && chars.peek().is_some_and(char::is_ascii_digit);
        out.push(if parameter { '?' } else { c });
    }
    out
}

/// Rewrites a migration: SQLite's strict tables have no BIGINT but INTEGER, and a table that is ordered by its key
/// needs no separate rowid.
pub(crate) fn sqlite_schema(sql: &str) -> String {
    sqlite(sql).replace("BIGINT", "INTEGER").replace("/* keyed */", "STRICT, WITHOUT ROWID").replace("/* wide */", "STRICT")
}

/// PostgreSQL understands `$n`. Its server provides the clock that all machines share.
pub(crate) fn postgres(sql: &str) -> String {
    choose(sql, 1).replace("/* clock */ NULL", "(extract(epoch FROM clock_timestamp()) * 1000)::bigint")
}

/// Takes one of the two texts of every `/* sqlite */ … /* postgres */ … /* end */`. On PostgreSQL, a table whose rows
/// follow from those of another one is joined by `LATERAL`: whatever the planner estimates, it must begin with the
/// other one.
fn choose(sql: &str, which: usize) -> String {
    let mut parts = sql.split("/* sqlite */");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |chosen, part| {
        let (texts, rest) = part.split_once("/* end */").expect("both texts end");
        let (sqlite, postgres) = texts.split_once("/* postgres */").expect("there are two texts");
        chosen + [sqlite, postgres][which] + rest
    })
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
