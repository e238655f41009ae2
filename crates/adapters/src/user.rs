//! The user of this process, from the system's own list of users: `$USER` is under the control of the caller.

use std::fs;
use std::path::PathBuf;

/// The system's list of users.
const PASSWD: &str = "/etc/passwd";

/// A user of this system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The login name; the number if the list has no name for it.
    pub name: Box<str>,
    /// The home directory, if the list has one.
    pub home: Option<PathBuf>,
}

impl User {
    /// The user of this process.
    pub fn current() -> User {
        let uid = rustix::process::getuid().as_raw();
        User::find(uid, &fs::read_to_string(PASSWD).unwrap_or_default())
    }

    fn find(uid: u32, passwd: &str) -> User {
        let number = uid.to_string();
        let mut users = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let found = users.find(|fields| fields.get(2) == Some(&&*number) && !fields[0].is_empty());
        let home = found.as_ref().and_then(|fields| fields.get(5)).map(PathBuf::from).filter(|home| home.is_absolute());
        User { name: found.map_or(&*number, |fields| fields[0]).into(), home }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_name_of_the_list_or_its_number() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n\nodd\nada:x:1000:1000:Ada,,,:/home/ada:/bin/sh\nbob:x:1001\n";
        let found = |uid| User::find(uid, passwd);
        assert_eq!(found(1000), User { name: "ada".into(), home: Some("/home/ada".into()) });
        assert_eq!(found(1001), User { name: "bob".into(), home: None });
        assert_eq!(found(7), User { name: "7".into(), home: None });
    }
}
