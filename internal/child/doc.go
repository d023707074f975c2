// Package child runs server programs as children of this process: PostgreSQL for the
// private server's watchdog, Redis and PgBouncer for tests.
//
//	        Start               Stop: signal, wait, the next signal …
//	cmd ─────────────▶ running ───────────────────────────────────────▶ ended
//	                    │   ▲
//	     Freeze(true)   ▼   │   Freeze(false)
//	                   frozen
//
// # What holds
//
//  1. A program ends with this process, however that one ends. Only Linux can promise
//     that; elsewhere a program stays when this process is killed.
//  2. Await returns nil only while the program runs and has answered.
//  3. Stop returns nil only when the program has ended and was waited for.
//  4. A program sees the environment of Env, and nothing of the caller's.
package child
