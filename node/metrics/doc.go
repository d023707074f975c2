// Package metrics is what a process shows of itself to whoever watches it: counts in the
// format of Prometheus, whether it lives, and whether it is ready. Nothing else of belfry
// knows of Prometheus.
//
//	job.Runner ── observer ──┐
//	relay.Relay ─ observer ──┼─► Metrics ──── /metrics ──┐
//	api.Handler ─ Observe ───┤                           │
//	pool, outage, Stats ─────┤                           ├── Server, on metrics.listen
//	Collector ───────────────┘ by its own timer          │
//	loops ──────────┐                                    │
//	Looker, by its  ├─► Health ──── /livez, /readyz ─────┘
//	own timer ──────┘
//
// What holds:
//
//  1. No request asks the database, or waits for anything that does: it reads what is known
//     in this process, and of the database what the last look found, with its age.
//  2. The values of each label are from a set that the program or the configuration bounds.
//     Jobs, lanes, channels and texts are in no label, nor is what a request says.
//  3. Whoever is observed is not held up: an observer adds to counters, and no more.
//  4. What is collected of the database is bounded, however much there is in it: it is read by
//     indexes, nothing is counted beyond 10,000, of messages only those that a carrier has,
//     and each statement has 5 seconds.
//  5. The name, type, labels and meaning of each metric are in docs/metrics.md, and stay.
//
// A process is live from the start of its Server on, until a loop of its ends that nobody
// told to, or no look at the database ends any more, well or badly: it hangs. It is ready while all of its loops run, the last look found the database with the
// schema that this program needs, and no stop has begun:
//
//	starting ──loops run, a look succeeded──► ready ──a stop──► stopping
//	                                           │ ▲
//	              a look fails, or is too old  ▼ │ a look succeeds
//	                                         not ready
//
// A database that is away makes no process less live: to start it again would not help.
package metrics
