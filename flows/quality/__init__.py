"""Quality of scores and judges: labels, calibration, canaries, noise, gates, comparison."""
