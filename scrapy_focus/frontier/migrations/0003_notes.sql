-- What is kept with a job beside its URLs: a few small values, each under a name.
CREATE TABLE notes (
    job INTEGER NOT NULL REFERENCES jobs,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (job, name)
) WITHOUT ROWID;
