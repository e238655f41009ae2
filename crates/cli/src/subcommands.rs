//! The verbs of a noun, and the nouns: an enum for clap, in which every variant is a command that runs itself.

/// A command that has no verbs of its own. The nouns have functions of the same name, which go before that of a trait.
pub(crate) trait WithoutVerbs {
    fn verb_alone(_name: &str) -> Option<clap::Command> {
        None
    }
}

impl<C: clap::Args> WithoutVerbs for C {}

/// Declares an enum of commands with its `run`; `all` of them, or the verbs of a `noun` together with this itself, also with what builds one
/// command without the others.
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

            /// The verb of this name without any other, unless it is an alias.
            pub(crate) fn verb_alone(name: &str) -> Option<clap::Command> {
                $(if name == stringify!($verb).to_ascii_lowercase() {
                    return Some(<$command as clap::Args>::augment_args(crate::subcommands::named(name)));
                })*
                None
            }
        }
    };
}

/// A command of this name. Names of the parser live as long as the process.
pub(crate) fn named(name: &str) -> clap::Command {
    clap::Command::new(&*name.to_owned().leak())
}
