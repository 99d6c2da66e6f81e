-- file: queries.sqlite
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE searches (
  id INTEGER PRIMARY KEY, at REAL NOT NULL, query TEXT NOT NULL, key TEXT NOT NULL,
  mode TEXT NOT NULL, result_count INTEGER NOT NULL, keyword_count INTEGER,
  origin TEXT NOT NULL CHECK (origin IN ('sdk', 'dashboard', 'cli', 'mcp')),
  caller TEXT, milliseconds REAL
);
INSERT INTO "searches" VALUES(1,1780000010.0,'waking order','waking order','hybrid',5,3,'dashboard',NULL,12.5);
INSERT INTO "searches" VALUES(2,1780000020.0,'retry  policy','retry policy','hybrid',3,2,'dashboard',NULL,12.5);
INSERT INTO "searches" VALUES(3,1780000030.0,'zymurgy','zymurgy','hybrid',0,0,'cli',NULL,12.5);
INSERT INTO "searches" VALUES(4,1780000040.0,'by meaning alone','by meaning alone','hybrid',9,0,'mcp',NULL,12.5);
INSERT INTO "searches" VALUES(5,1780000050.0,'Retry policy','retry policy','lexical',4,4,'dashboard',NULL,12.5);
CREATE INDEX searches_at ON searches (at)
;
COMMIT;
-- file: journal.sqlite
PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE approvals (hash TEXT PRIMARY KEY, source TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
INSERT INTO "approvals" VALUES('abc','docs',1780000000.0);
CREATE TABLE bookmarks (
  ref TEXT PRIMARY KEY, title TEXT NOT NULL, note TEXT NOT NULL, created REAL NOT NULL, changed REAL NOT NULL
) WITHOUT ROWID;
INSERT INTO "bookmarks" VALUES('guide/start','Getting started','',1780000000.0,1780000000.0);
INSERT INTO "bookmarks" VALUES('jp-c17800000001:2','Waking order','the ibex',1780000005.0,1780000005.0);
CREATE TABLE fetched (source TEXT, url TEXT, facts TEXT NOT NULL, PRIMARY KEY (source, url)) WITHOUT ROWID
;
INSERT INTO "fetched" VALUES('docs','https://a.example/','{"etag": "1"}');
CREATE TABLE runs (
  source TEXT PRIMARY KEY, began REAL NOT NULL, ended REAL NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('ok', 'partial', 'error')), error TEXT,
  entries INTEGER NOT NULL, added INTEGER NOT NULL, updated INTEGER NOT NULL, removed INTEGER NOT NULL,
  unchanged INTEGER NOT NULL, problems TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "runs" VALUES('docs',1780000000.0,1780000009.0,'partial','one address timed out',7,1,2,0,4,'["one address timed out"]');
CREATE TABLE sessions (name TEXT PRIMARY KEY, state TEXT NOT NULL, at REAL NOT NULL) WITHOUT ROWID;
INSERT INTO "sessions" VALUES('tui','{"open": "guide/start", "line": 12}',1780000000.0);
COMMIT;
