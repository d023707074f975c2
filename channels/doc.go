// Package channels says who: it owns the recipients of notifications, the
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
//	            │   ids found now, visited in order
//	            │ segment: its members in id order
//
// # The contract of the relation
//
//	id           bigint, integer or smallint: unique, NOT NULL, never changed, indexed,
//	             above -2^63
//	external_id  text: the service's own user id, unique
//	platform     text
//	active       boolean: others match no audience
//	location     point(longitude, latitude), -180…180 and -90…90 degrees   optional
//	locale, time_zone      text                                            optional
//	attributes, addresses  jsonb objects                                   optional
//
// An optional column that is not there reads as NULL, empty text or {}. Without location
// there are no radius audiences; with it they need a GiST index on it, best with
// INCLUDE (id). For a view that makes its location as point(lon, lat), the index
// is on that expression. Check names every fault, and Vet refuses to walk a relation with
// one that is fatal. Record has the database know the relation and its columns. Import
// writes belfry.channels only.
//
// # Invariants
//
//  1. A page examines at most limit keys, in ascending order, above the given
//     position and at or below the bound. Its rows are those that are active and
//     match when the page is read. However sparse the matches, no page scans
//     further; a page without rows still moves on. Only Read 0 is the end.
//  2. A channel at or below the bound, committed before Open and matching from
//     then until its page is read, is in exactly one page (I1 of the design). One
//     that begins to match after Open may be in one page or none.
//  3. A radius costs in proportion to the channels in its bounding box while
//     those are at most 262,144 in the window; above, each page costs its limit.
//  4. Memory is bounded by the page limit and 262,144 ids of 8 bytes, whatever
//     the size of the audience.
//  5. A circle is what belfry.distance_m says it is: great-circle metres on a
//     sphere, the edge included, through the 180° meridian and the poles.
//
// An Inspection reads the other way round: how every channel stands to an audience,
// for an audit. For belfry.channels updated_at follows whatever an audience looks at,
// by a trigger; another relation says when its channels were made and changed by
// columns created_at and updated_at of type timestamptz, or not at all.
//
// A Walk keeps no position: reading a page again after a rollback is safe, and
// resuming after a crash is Open with the stored cursor and bound.
//
// # Attached relations
//
// A table of the application whose keys are uuid or text is followed by belfry.channels:
// Attach puts triggers on it that write the channel in the transaction of its row,
// Backfill brings over what was there before, Verify finds and repairs what was written
// around the triggers. At any moment after Backfill the active channels are those of the
// rows that are active, in every committed state. The application's writes wait for a
// step of Backfill or Verify at most, never fail for it, and need no rights of belfry's.
//
// # Preferences
//
// What recipients do not want stands in belfry.opt_outs, by channel, category and medium,
// and addresses that a provider called invalid in belfry.invalid_addresses, by their
// SHA-256: the relation itself is the user's, and belfry does not write to it to deliver.
// Whoever sends reads both, and Recipients, right before. A Category has the route, the
// quiet hours and the cap of its messages; a change of one is recorded in belfry.events.
// Opt-outs and categories are written by plain SQL too: triggers refuse what is not
// allowed and record.
//
// # Importing
//
// Import reads CSV in UTF-8 (RFC 4180, a byte order mark tolerated), plain or
// gzip by its first bytes. The first row names the columns, in any order:
//
//	external_id, platform        required
//	active                       true or false; empty keeps it (new: true)
//	latitude, longitude          both or neither; empty: no location
//	locale, time_zone            empty clears; a time zone is a name of the IANA database
//	attributes, addresses        a JSON object, which replaces; empty: {}
//	address.<medium>             sets one address; empty removes it
//
// ImportOptions.Columns maps other names to these. A column that is not in the file leaves what is there. Among rows with the same
// external_id the last one wins. A bad row is rejected with its line and the
// reason; the other rows are imported. A record that encoding/csv refuses is rejected with the
// bytes of all its lines, and a record of several lines names them, because a stray quote
// joins everything up to the next quote. A quote that is closed neither within 1 MiB nor by
// the end of the file stops the import with the line of its row; rows before it are imported.
// In the file of rejects nothing begins as a
// formula of a spreadsheet does: an apostrophe stands before it, which an import of that
// file takes away again.
//
// # Failure behaviour
//
// Malformed audiences are ErrAudience and name the key; a relation that lacks
// something is ErrRelation; an unknown segment ErrNoSegment, an unknown category
// ErrNoCategory; an opt-out or a setting that is not allowed ErrPreference. Errors of the
// database keep their *pgconn.PgError. Nothing is retried here except an import's
// batches: whoever owns the transaction decides.
//
// # What it does not promise
//
// Total is an estimate. Count is exact at its moment, and a job that starts later
// may meet others. That keys never change cannot be checked, and belfry.channels
// keeps it by a trigger. Rows whose location lies outside the degrees above are
// found by no radius.
package channels
