-- What the next run must know to tell that the system's clock was set meanwhile.
-- How far the run's clock was ahead of the one that nobody sets, and the machine's start that
-- this one counts from.
ALTER TABLE runs ADD COLUMN ahead REAL;
ALTER TABLE runs ADD COLUMN boot TEXT;
