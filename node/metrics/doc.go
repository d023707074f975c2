// Package metrics exports the metrics of a process in the Prometheus format, its liveness and its
// readiness. No other package of belfry depends on Prometheus.
//
//	job.Runner ── observer ──┐
//	relay.Relay ─ observer ──┼─► Metrics ──── /metrics ──┐
//	api.Handler ─ Observe ───┤                           │
//	live.Server ─ Stats ─────┤                           │
//	pool, outage, Stats ─────┤                           ├── Server, on metrics.listen
//	Collector ───────────────┘ by its own timer          │
//	loops ──────────┐                                    │
//	Poller, by its  ├─► Health ──── /livez, /readyz ─────┘
//	own timer ──────┘
//
// # Invariants
//
//  1. No request queries the database or waits for a query. It reads values of this process, and the
//     results of the last poll of the database with their age.
//  2. The values of each label come from a set that the program or the configuration bounds. Jobs,
//     lanes, channels, texts and content of requests are not labels.
//  3. An observer only adds to counters and never blocks its caller.
//  4. Queries of the database are bounded at every size of the tables: they use indexes, count at most
//     10,000 rows, read only messages that a carrier has, and time out after 5 seconds.
//  5. The name, type, labels and meaning of each metric are in docs/metrics.md and do not change.
//
// A process is live from the start of its Server until one of its loops ends without a stop, or until
// polls of the database no longer end. It is ready while all loops run, the last poll found a schema
// that this program may use, and no stop has begun:
//
//	starting ──loops run, a poll succeeded──► ready ──a stop──► stopping
//	                                           │ ▲
//	              a poll fails, or is too old  ▼ │ a poll succeeds
//	                                         not ready
//
// A database that is down does not make a process less live, because a restart would not help.
package metrics
