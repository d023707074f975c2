// Package pgserver runs a private PostgreSQL server, so that belfry works on a
// machine where nobody has set a database up.
//
// It finds the newest local PostgreSQL (15 or later), creates a cluster in the
// user's data directory, starts it with a Unix socket and no TCP port, shares
// it between all processes that open the same directory, and stops it when the
// last of them is gone, even if that one was killed with SIGKILL.
//
// # Processes
//
//	user process ──starts, connects──▶ watchdog ──initdb, starts, reaps──▶ postgres
//	      ▲                               │
//	      └── ready, or why it is not ────┘
//
// A user is one open Server: a connection to the watchdog through a Unix socket. The
// kernel closes it when the user's process ends, however that one ends. The watchdog is
// this same executable started again with a marker in its environment (see Watchdog);
// there is one for each cluster in use. It does all that is done to the cluster: it makes
// it, starts the server when a user comes and none runs, and when the last user is gone
// it stops the server and exits. The watchdog is in a session of its own and holds
// neither the terminal nor the standard streams of the process that started it. For root
// it becomes the account that PostgreSQL is to run as before it touches a file.
//
// # States of a cluster
//
//	absent ──initdb, rename──▶ stopped ──a user comes──▶ starting ──▶ running
//	                              ▲                         │           │
//	                              └── last user gone, Stop, crash ──────┘
//
// # Files
//
//	DataDir/pg15                  a durable cluster; pg15-volatile-BOOT is one of tests
//	DataDir/pg15/data             its files (PGDATA)
//	DataDir/pg15/init-*           an initdb that has not finished; swept by the next start
//	DataDir/pg15/sock             the sockets of server and watchdog, when their paths are
//	                              short enough, else a directory in /tmp
//	DataDir/pg15/postgresql.log   log of server and watchdog; postgresql.log.1 is the one before
//	DataDir/pg15/cluster.lock     exclusive for as long as a watchdog lives; never deleted
//
// # Invariants
//
//   - P1: at most one server runs on a cluster, and at most one watchdog.
//   - P2: a server started here runs only while it has a watchdog, and a
//     watchdog lives only while there is a user. (Killing the watchdog itself
//     stops the server on Linux, through the parent-death signal; elsewhere the
//     next Open does.)
//   - P3: when Close of the last user returns nil, server and watchdog are gone.
//   - P4: a cluster appears complete or not at all: initdb works in a sibling
//     directory that is renamed at the end.
//   - P5: a cluster is opened only by the major version that made it.
//
// # Failures
//
// A crash of the server, of the machine, or SIGKILL of anything leaves a cluster
// that the next Open starts: a postmaster.pid that names a process which is not
// its postmaster is told apart from a running server, and PostgreSQL's own check
// for surviving backends stays in force. A server that does not start is
// reported with the end of its log. A server that somebody started by hand on
// the directory is joined and is never stopped from here.
//
// A cluster opened with Durable false runs without fsync. If the machine went
// down while such a server ran, its files cannot be trusted: its directory is named after
// the boot of the machine, and those of other boots are removed.
//
// # Access
//
// Local connections are trusted: whoever can enter the socket directory is
// superuser of the server. That directory and the socket have mode 0700 and
// belong to the account that runs the server. For root, which PostgreSQL
// refuses, this is postgres if it exists and otherwise nobody, or the owner of
// an existing cluster.
//
// # Not promised
//
// No restart of a server that died while in use (call Server.Start, or Open it once more), no upgrade
// from one major version to the next, no replication, no backup, no Windows.
package pgserver
