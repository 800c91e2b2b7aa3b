"""What stands between jobs and diagnoses: a launcher, schedulers' hooks, notices; nothing of it decides anything."""
