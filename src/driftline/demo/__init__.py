"""The demo: a week of a shop's events, one file a day, as they come; nothing is prepared."""
