// Package dbtest gives each test a PostgreSQL database of its own.
//
// A test package has one line in TestMain, and each test asks for its database:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestStore_Enqueues(t *testing.T) {
//		t.Parallel()
//		db := dbtest.New(t)
//		… db.Pool, db.DSN …
//	}
//
// The databases are on the server that BELFRY_TEST_DATABASE_URL names, whose user
// must be a superuser and which must not be behind a pooler.
// Without that variable they are on a private server, started by the first test
// that needs it and stopped by the last test process to end (package pgserver).
// That server runs without fsync. Its files are in BELFRY_TEST_DIR if that is set,
// else in /dev/shm/belfry-test-UID where that is in memory and has 4 GiB free, else
// in the user's cache directory. They stay for the next run.
//
// New clones a template that has all migrations applied, which takes some tens
// of milliseconds. The template is named after a hash of the migrations: it is
// made once for each version of the schema, by one process while the others
// wait, and appears under its name only when it is complete.
//
// Most tests only write rows. Reused gives them a database that tests before them have used
// and that was emptied since, with its connections and their plans: a tenth of the cost.
//
// A database is dropped when its test ends. If the test failed it is kept, and
// its DSN is logged. Those of Reused are dropped when the process ends. Databases and
// templates that nobody used for a day are dropped by a later run.
//
// Tests that stop, crash or reconfigure the server use NewServer, which gives
// them one of their own. Tests that start processes or read a log while it is written
// gather what is said in a Buffer. StartRedis, StartNATS and StartPgBouncer give a test a server of its
// own beside PostgreSQL.
package dbtest
