// Package redisdb is what belfry knows of Redis and Valkey servers: how they are named in the
// configuration, how clients of them behave, what must be right about them, and which errors
// say that a server is away. The carriers of ids and the abort cache stand on it; what they
// keep there is theirs.
//
//	Config ── Validate ──► Open ──► DB ┬─ Do      commands and scripts, each within Timeout
//	                        │          ├─ Block   takes that wait, on connections of their own
//	                        │          └─ Check   version, memory policy, role, connections
//	     one server, the servers of a Cluster, or the master that Sentinels name
//
// # What holds
//
//  1. A command is sent once. go-redis repeats commands after network errors unless it is
//     told not to, in a Cluster under another name, and a BLMOVE that runs twice strands an
//     item. Only MOVED is answered by asking again: it says that nothing was done.
//  2. Takes that wait have a pool of their own: nothing else waits for a connection behind
//     them.
//  3. Nothing connects before it is used, and what uses it goes on by itself after the server
//     was away.
//  4. No error holds the URL, a user or a password.
//
// # What it does not promise
//
// That Check sees everything: a server may refuse INFO to its users, which is a warning. That
// nothing but belfry's log says something: go-redis writes a line to the standard error when
// the master that Sentinels name changes, or a connection that waits is cut.
package redisdb
