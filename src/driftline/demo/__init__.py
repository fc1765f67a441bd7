"""The data of the demo: a week of a shop's events, one file a day, unprepared."""
