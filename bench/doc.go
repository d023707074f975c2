// Command bench measures the delivering half of belfry beside River, a job queue on
// PostgreSQL, and what enqueueing an activity costs an application. It is a module of
// its own, so that what belfry is compared with never enters belfry's go.mod.
//
//   - river: messages a second that a relay claims, hands over, sends to a sender that
//     does nothing, and settles durably, against the jobs a second of River in the shape
//     of its own benchmark (cmd/river/riverbench): no-op jobs inserted beforehand, 2,000
//     workers, its fetch settings. Same server, rounds in turns.
//   - claims: how long the relay's claims take at the beginning and at the end of two
//     jobs' messages, and the same while another transaction keeps vacuum from
//     removing anything.
//   - orders: how long an application's transaction takes that writes an order and an
//     activity, against the order alone, while a relay delivers to a provider that hangs.
//
// All of it is durable: fsync and synchronous_commit are on. The server is a private
// one in a temporary directory. Compare the ratios, not the figures.
package main
