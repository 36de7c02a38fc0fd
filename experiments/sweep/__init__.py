"""From an experiment to finished points: combinations, workers, the run folder, what a result depends on."""
