// Package dbtest provides each test with a PostgreSQL database of its own.
//
// A test package has one line in TestMain, and each test requests its database:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestStore_Enqueues(t *testing.T) {
//		t.Parallel()
//		db := dbtest.New(t)
//		… db.Pool, db.DSN …
//	}
//
// BELFRY_TEST_DATABASE_URL names the server. Its user must be a superuser, and the server must not be behind a pooler.
// Without that variable, the first test starts a private server, and the last test process stops it (package
// pgserver). That server runs without fsync. Its files are in BELFRY_TEST_DIR if that is set, or else in
// /dev/shm/belfry-test-UID if that is in memory and has 4 GiB free, or else in the user's cache directory. They
// remain for the next run.
//
// New clones a template with all migrations in some tens of milliseconds. The template's name contains a hash of the
// migrations. One process creates it for each version of the schema while the other processes wait. It gets its
// name when it is complete.
//
// Most tests only write rows. Reused provides a database of previous tests, emptied, with its connections and their
// plans, at a tenth of the cost.
//
// A database is dropped when its test ends. If the test failed, the database remains and its DSN is logged. Databases
// of Reused are dropped when the process ends. A later run drops databases and templates that were not used for a
// day.
//
// Tests that stop, crash or reconfigure the server use NewServer, which starts a server for one test. Tests that start
// processes or read a log while it is written use a Buffer. StartRedis, StartNATS and StartPgBouncer start other
// servers for one test.
package dbtest
