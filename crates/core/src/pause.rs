//! A pause: no run of a project, or of one task, is started until a person resumes it.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::time::Wall;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    pub verb: PauseVerb,
    pub by: Box<str>,
    pub at: Wall,
}

/// The command that a person gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum PauseVerb {
    /// Live runs continue.
    Pause,
    /// The sessions were stopped.
    Stop,
    /// The sessions were stopped by interrupting their runner.
    Interrupt,
}

impl PauseVerb {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether starting a runner ends the pause: people stop the work for a moment, but pause it to keep it paused.
    pub fn is_lifted_by_run(self) -> bool {
        match self {
            PauseVerb::Pause => false,
            PauseVerb::Stop | PauseVerb::Interrupt => true,
        }
    }
}

impl Pause {
    /// The pause that holds when this one follows another: a pause that a runner does not lift stays.
    pub fn after(self, before: Option<Pause>) -> Pause {
        match before {
            Some(before) if !before.verb.is_lifted_by_run() => before,
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_a_runner_does_not_lift_stays() {
        let pause = |verb| Pause { verb, by: "ann".into(), at: Wall(7) };
        assert_eq!(pause(PauseVerb::Stop).after(Some(pause(PauseVerb::Pause))).verb, PauseVerb::Pause);
        assert_eq!(pause(PauseVerb::Pause).after(Some(pause(PauseVerb::Stop))).verb, PauseVerb::Pause);
        assert_eq!(pause(PauseVerb::Interrupt).after(Some(pause(PauseVerb::Stop))).verb, PauseVerb::Interrupt);
        assert_eq!(pause(PauseVerb::Stop).after(None).verb, PauseVerb::Stop);
    }

    #[test]
    fn the_stored_form_is_frozen() {
        let text = r#"{"verb":"interrupt","by":"ann","at":7}"#;
        let pause = Pause { verb: PauseVerb::Interrupt, by: "ann".into(), at: Wall(7) };
        assert_eq!(serde_json::to_string(&pause).unwrap(), text);
        assert_eq!(serde_json::from_str::<Pause>(text).unwrap(), pause);
    }
}
