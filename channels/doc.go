// Package channels selects recipients: it owns the recipients of notifications, the
// audiences that select them, and the walk that reads an audience page by page.
//
// A channel is one recipient; each user of the service has one. Channels are the
// rows of one relation: belfry.channels, or the table or view that
// channels.relation names. An Audience is a typed value, never SQL. Opened
// between two positions of the relation's key it becomes a Walk:
//
//	Bound ──► Open(audience, after, bound) ──► IDs / Channels(after, limit) ──► …
//	            │                                   ▲        │
//	            │ everyone, platforms, dense circle:│        │ Next, the last key examined
//	            │   the relation in id order        └────────┘
//	            │ circle of ≤ 262,144, listed channels:       Read = 0: exhausted
//	            │   ids selected by Open, read in order
//	            │ segment: its members in id order
//
// # The contract of the relation
//
//	id           bigint, integer or smallint: unique, NOT NULL, never changed, indexed,
//	             above -2^63
//	external_id  text: the service's own user id, unique
//	platform     text
//	active       boolean: inactive channels match no audience
//	location     point(longitude, latitude), -180…180 and -90…90 degrees   optional
//	locale, time_zone      text                                            optional
//	attributes, addresses  jsonb objects                                   optional
//
// A missing optional column reads as NULL, empty text or {}. A platform of more than 32
// characters, a locale of more than 35 and a time zone of more than 64 read as empty text. Radius audiences need the
// column location and a GiST index on it, best with INCLUDE (id). If a view computes its
// location as point(lon, lat), the index must be on that expression. Check returns every
// fault of the relation, and Vet rejects a relation with a fatal fault. Record stores the
// relation and its columns in the database.
//
// # Subpackages
//
// attach lets belfry.channels follow a table of the application. importing reads CSV files
// into belfry.channels. unsubscribe signs links. This package imports none of them.
//
// # Invariants
//
//  1. A page examines at most limit keys, in ascending order, above the given
//     position and at or below the bound. Its rows are active and match the audience
//     when the page is read. However sparse the matches, no page scans
//     further; a page without rows still advances. Only Read 0 is the end.
//  2. A channel at or below the bound, committed before Open and matching from
//     then until its page is read, is in exactly one page (I1 of the design). A channel
//     that begins to match after Open may be in one page or none.
//  3. A radius costs in proportion to the channels in its bounding box up to
//     262,144 channels in the window; above, each page costs its limit.
//  4. Memory is bounded by the page limit and 262,144 ids of 8 bytes, whatever
//     the size of the audience.
//  5. belfry.distance_m defines a circle: great-circle metres on a
//     sphere, the edge included, through the 180° meridian and the poles.
//
// An Inspection is the reverse of a walk: it returns the relation of every channel to an
// audience, for an audit. In belfry.channels a trigger sets updated_at when a column that
// audiences read changes. Another relation may have columns created_at and updated_at of
// type timestamptz; without them these times are unknown.
//
// A Walk stores no position: reading a page again after a rollback is safe, and
// resuming after a crash is Open with the stored cursor and bound.
//
// # Preferences
//
// belfry.opt_outs has the opt-outs by channel, category and medium.
// belfry.invalid_addresses has the SHA-256 of addresses that a provider rejected. Both are
// separate tables, because the relation is the user's and belfry does not write to it to
// deliver. Senders read both, and Recipients, immediately before sending. A Category has
// the route, the quiet hours and the cap of its messages; belfry.events records its
// changes. Plain SQL may write opt-outs and categories; triggers validate and record the
// writes.
//
// # Failure behaviour
//
// A malformed audience is ErrAudience and names the key; a relation without a required
// column is ErrRelation; an unknown segment ErrNoSegment, an unknown category
// ErrNoCategory; an invalid opt-out or setting ErrPreference. Errors of the
// database retain their *pgconn.PgError. This package retries nothing; the owner of the
// transaction decides.
//
// # What it does not promise
//
// Total is an estimate. Count is exact when it is read, and a job that starts later
// may reach a different number of channels. Check cannot verify that keys never change; in
// belfry.channels a trigger prevents it. No radius includes rows whose location is outside
// the degrees above.
package channels
