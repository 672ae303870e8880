"""The node as a program: start and stop, configuration, the command line, and connections that misbehave."""
