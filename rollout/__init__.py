"""Runs of the site through ansible-runner, as typed events and outcomes."""
