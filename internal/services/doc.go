// Package services runs the servers that tests need beside PostgreSQL: a Redis
// (or Valkey) and a PgBouncer, each private to one test, to be queried, stopped,
// frozen and started again. Package child runs them; what is here of a server is its
// command line and how to ask whether it answers.
//
//	func TestCache_ServerGone(t *testing.T) {
//		t.Parallel()
//		redis := services.StartRedis(t)
//		… redis.URL …
//		require.NoError(t, redis.Stop())
//	}
//
// # States
//
//	          StartRedis, StartPgBouncer
//	                      │
//	                      ▼   ── Pause ──▶
//	stopped ── Start ──▶ running          frozen
//	   ▲                  │   ◀─ Continue ─  │
//	   └───────── Stop ───┴──────────────────┘
//
// # What holds
//
//  1. A server that Start has returned from answers, and the one that answers is
//     that process and no other.
//  2. A server that Pause has returned from runs no instruction until Continue.
//     The kernel goes on accepting connections and bytes in its name.
//  3. Stop is SIGKILL: a crash. Nobody is told, sockets stay behind, and a Redis
//     starts again empty.
//  4. A server ends with its test, and on Linux with the test's process, however
//     that one ends.
//  5. A restarted server has the address it had before.
//
// # Failure
//
// Without the program the test is skipped by name; .ci/install-services installs
// it. A server that ended by itself fails its test, which shows the end of the
// server's log.
//
// # Not promised
//
// When the test's process is killed, a directory of a few kilobytes stays in the
// temporary directory; on systems other than Linux the server stays too. Another
// process may take the port of a stopped Redis; ports are drawn from below the
// range that systems give to outgoing connections, which leaves only listeners.
package services
