// Package redisdb configures, connects to and checks Redis and Valkey servers, and classifies their
// errors. The carriers of ids and the abort cache build on it.
//
//	Config ── Validate ──► Open ──► DB ┬─ Do      commands and scripts, each within Timeout
//	                        │          ├─ Block   blocking calls, on a separate pool
//	                        │          └─ Check   version, memory policy, role, connections
//	     one server, the servers of a Cluster, or the master that Sentinels name
//
// # Guarantees
//
//  1. A command is sent once. By default go-redis repeats commands after network errors, in a Cluster
//     under another option, and a repeated BLMOVE strands an item. Only MOVED is followed: it means that
//     the command was not executed.
//  2. Blocking calls have their own pool, so that no other command waits behind them for a connection.
//  3. Connections are opened on first use and again after an outage.
//  4. No error contains the URL, a user or a password.
//
// # Not guaranteed
//
// Check is incomplete: a server may deny INFO to its users, which is a warning. go-redis writes a line
// to the standard error when the Sentinels' master changes or a blocked connection is cut; it cannot be
// redirected.
package redisdb
