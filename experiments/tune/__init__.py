"""Search of the parameters of an arm, judged on held-out seeds."""
