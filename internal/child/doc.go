// Package child runs server programs as children of this process: PostgreSQL for the
// private server's watchdog, Redis and PgBouncer for tests.
//
//	        Start               Stop: signal, wait, the next signal …
//	cmd ─────────────▶ running ───────────────────────────────────────▶ ended
//	                    │   ▲
//	     Freeze(true)   ▼   │   Freeze(false)
//	                   frozen
//
// # Invariants
//
//  1. On Linux a program ends with this process, even if this process is killed. On other
//     systems a program survives a kill of this process.
//  2. Await returns nil only while the program runs and has answered.
//  3. Stop returns nil only after the program has ended and its exit status was read.
//  4. A program has only the environment of Env.
package child
