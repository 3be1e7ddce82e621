"""Training: schedules, halting rules, losses, optimizers and the resumable, distributable loop over them."""
