"""From points to what a run says: frontier, intervals, roles of arms, effects, summary."""
