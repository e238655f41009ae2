//! The verbs of a noun, and the nouns: an enum for clap, in which every variant is a command that runs itself.

/// Declares the enum and its `run`; with `of`, also the `run` of the noun that has it as its field `verb`; with `all`, also `alone`.
macro_rules! subcommands {
    (all enum $verbs:ident { $($(#[$meta:meta])* $verb:ident($command:ty)),* $(,)? }) => {
        subcommands! { enum $verbs { $($(#[$meta])* $verb($command)),* } }

        impl $verbs {
            /// The command of this name without any other, unless it is an alias: to build all of them takes longer than most of them run.
            fn alone(name: &str) -> Option<clap::Command> {
                $(if name == stringify!($verb).to_ascii_lowercase() {
                    // Names of the parser live as long as the process.
                    let command = clap::Command::new(&*name.to_owned().leak());
                    return Some(<$command as clap::Args>::augment_args(command));
                })*
                None
            }
        }
    };
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
