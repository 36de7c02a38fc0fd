"""The losslessness checker: little worlds enumerated exactly, two rules, a search for counterexamples."""
