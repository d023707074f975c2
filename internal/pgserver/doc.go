// Package pgserver runs a private PostgreSQL server, so that belfry works on a machine without a configured
// database.
//
// It finds the newest local PostgreSQL (15 or later), creates a cluster in the user's data directory, starts it
// with a Unix socket and without TCP, shares it between all processes that open the same directory, and stops it
// after the last of them, even if that process was killed with SIGKILL.
//
// # Processes
//
//	client ──starts──▶ watchdog ──initdb, starts, stops──▶ postgres
//
// A client is one open Server. It has a shared lock (flock) on the cluster's directory. The kernel releases the lock
// when the client's process ends. A client that finds no server starts a watchdog: the same executable with a
// marker in its environment (see Watchdog). The watchdog does everything that changes the cluster. For root, it
// first becomes the account that runs the server. It waits for an exclusive lock on the directory, gets it after
// the last client's end, stops the server and ends. Only then, a new client can lock the directory. The watchdog
// has a session of its own and does not keep the terminal or the standard streams of its client.
//
// # States of a cluster
//
//	absent ──initdb, rename──▶ stopped ──first client──▶ starting ──▶ running
//	                              ▲                          │           │
//	                              └── last client ended, Stop, crash ────┘
//
// # Files
//
//	DataDir/pg15                    a cluster, its lock and its Unix socket; pg15-volatile is a cluster of tests
//	DataDir/pg15/data               its files (PGDATA)
//	DataDir/pg15/init-*             an unfinished initdb; the next start removes it
//	DataDir/pg15/postgresql.log     log of server and watchdog
//	DataDir/pg15/cluster.lock       locked during a watchdog's life; never deleted
//
// # Invariants
//
//   - P1: at most one server runs on a cluster, and at most one watchdog.
//   - P2: a server runs only while it has a watchdog, and a watchdog lives only while there is a client. If the
//     watchdog is killed, the server ends too: on Linux by the parent-death signal, elsewhere by the next Open.
//   - P3: when the last client's Close returns nil, server and watchdog have ended.
//   - P4: a cluster is complete or absent: initdb works in a sibling directory that is renamed at the end.
//   - P5: a cluster is opened only by the major version that made it.
//
// # Failures
//
// After a crash of the server or the machine, or SIGKILL of any process, the next Open starts the cluster: it does
// not mistake another process with the id in postmaster.pid for the server, and PostgreSQL's own check for
// surviving backends stays in force. If a server does not start, the error contains the end of its log. A server
// without a watchdog, for example one started by hand, is stopped and started again.
//
// A crash can damage a cluster without fsync. Such a cluster is opened with Volatile, which creates it anew after a
// crash.
//
// # Access
//
// Local connections are trusted: every account that can use the socket is superuser of the server. The socket has
// mode 0700 and belongs to the account that runs the server. PostgreSQL refuses to run as root. For root, the
// account is postgres, or nobody if there is no postgres, or the owner of an existing cluster.
//
// # Not promised
//
// No restart of a server that died while in use (call Server.Start or Open), no upgrade from one major version to the
// next, no replication, no backup, no Windows, no data directory on NFS.
package pgserver
