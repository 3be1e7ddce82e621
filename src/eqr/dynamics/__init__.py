"""Trajectories: rows, what advances them, and when a row stops. `iterate` is the way in."""
