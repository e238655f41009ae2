//! The verbs of a noun, and the nouns: an enum for clap, in which every variant is a command that runs itself.

/// A command that has no verbs of its own. The nouns have functions of the same name, which go before that of a trait.
pub(crate) trait WithoutVerbs {
    fn verb_alone(_name: &str) -> Option<clap::Command> {
        None
    }
}

impl<C: clap::Args> WithoutVerbs for C {}

/// Declares the enum and its `run`, and what builds one command without the others; with `of`, also the `run` of the noun that has it as
/// its field `verb`.
macro_rules! subcommands {
    (all enum $verbs:ident { $($(#[$meta:meta])* $verb:ident($command:ty)),* $(,)? }) => {
        subcommands! { enum $verbs { $($(#[$meta])* $verb($command)),* } }

        impl $verbs {
            /// The command of this name without any other, and a noun with no verb but this one. Nothing if a word is no such name: it
            /// may be an alias. To build all commands takes longer than most of them run.
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
    (enum $verbs:ident of $noun:ident { $($body:tt)* }) => {
        subcommands! { enum $verbs { $($body)* } }
        subcommands! { alone $verbs { $($body)* } }

        impl $noun {
            pub(crate) fn run(self, context: &crate::context::Context) -> crate::commands::ExitResult {
                self.verb.run(context)
            }

            pub(crate) fn verb_alone(name: &str) -> Option<clap::Command> {
                $verbs::alone(name)
            }
        }
    };
    (alone $verbs:ident { $($(#[$meta:meta])* $verb:ident($command:ty)),* $(,)? }) => {
        impl $verbs {
            /// The verb of this name without any other, unless it is an alias.
            fn alone(name: &str) -> Option<clap::Command> {
                $(if name == stringify!($verb).to_ascii_lowercase() {
                    return Some(<$command as clap::Args>::augment_args(crate::subcommands::named(name)));
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
}

/// A command of this name. Names of the parser live as long as the process.
pub(crate) fn named(name: &str) -> clap::Command {
    clap::Command::new(&*name.to_owned().leak())
}
