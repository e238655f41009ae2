//! Declares nouns and their subcommands: an enum for clap in which every variant is a command that runs itself.

/// A command without subcommands. The function of the same name on a noun has precedence over the one of this trait.
pub(crate) trait WithoutVerbs {
    fn verb_alone(_name: &str) -> Option<clap::Command> {
        None
    }
}

impl<C: clap::Args> WithoutVerbs for C {}

/// Declares an enum of commands with its `run`: `all` of them, or the subcommands of a `noun`, with functions that
/// build one command without the others.
macro_rules! subcommands {
    (all enum $verbs:ident { $($(#[$meta:meta])* $verb:ident($command:ty)),* $(,)? }) => {
        subcommands! { enum $verbs { $($(#[$meta])* $verb($command)),* } }

        impl $verbs {
            /// Builds the command of this name alone, a noun with only this subcommand. `None` for an unknown name,
            /// which may be an alias. Building all commands takes longer than most of them run.
            fn alone(name: &str, verb: Option<&str>) -> Option<clap::Command> {
                use crate::subcommands::{WithoutVerbs as _, named};
                $(if name == stringify!($verb).to_ascii_lowercase() {
                    return Some(match verb.and_then(<$command>::verb_alone) {
                        Some(verb) => named(name).subcommand_required(true).subcommand(verb),
                        None => <$command as clap::Args>::augment_args(named(name)),
                    });
                })*
                None
            }
        }
    };
    (enum $verbs:ident { $($(#[$meta:meta])* $verb:ident($command:ty)),* $(,)? }) => {
        #[derive(Debug, clap::Subcommand)]
        enum $verbs {
            $($(#[$meta])* $verb($command),)*
        }

        impl $verbs {
            fn run(self, context: &crate::context::Context) -> crate::commands::ExitResult {
                match self {
                    $($verbs::$verb(command) => command.run(context),)*
                }
            }
        }
    };
    ($(#[$noun_meta:meta])* $visible:vis noun $noun:ident { $($(#[$meta:meta])* $verb:ident($command:ty)),* $(,)? }) => {
        #[derive(Debug, clap::Args)]
        $(#[$noun_meta])*
        $visible struct $noun {
            #[command(subcommand)]
            verb: Verb,
        }

        subcommands! { enum Verb { $($(#[$meta])* $verb($command)),* } }

        impl $noun {
            pub(crate) fn run(self, context: &crate::context::Context) -> crate::commands::ExitResult {
                self.verb.run(context)
            }

            /// Builds the subcommand of this name alone; `None` for an alias.
            pub(crate) fn verb_alone(name: &str) -> Option<clap::Command> {
                $(if name == stringify!($verb).to_ascii_lowercase() {
                    return Some(<$command as clap::Args>::augment_args(crate::subcommands::named(name)));
                })*
                None
            }
        }
    };
}

/// A command of this name. The names of the parser must be static.
pub(crate) fn named(name: &str) -> clap::Command {
    clap::Command::new(&*name.to_owned().leak())
}
