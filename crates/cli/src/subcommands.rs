//! The verbs of a noun, and the nouns: an enum for clap, in which every variant is a command that runs itself.

/// Declares the enum and its `run`; with `of`, also the `run` of the noun that has it as its field `verb`.
macro_rules! subcommands {
    (enum $verbs:ident of $noun:ident { $($body:tt)* }) => {
        subcommands! { enum $verbs { $($body)* } }

        impl $noun {
            pub(crate) fn run(self, context: &crate::context::Context) -> crate::commands::ExitResult {
                self.verb.run(context)
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
