// Package importing upserts channels from CSV files into belfry.channels.
//
//	file ──► gzip? ──► records ──► rows ──► batch ──► COPY, INSERT, UPDATE, COMMIT ──► …
//	                      │          │                  │
//	                      └──────────┴──────────────────┴──► rejects, as CSV
//
// Import reads CSV in UTF-8 (RFC 4180, with or without a byte order mark), plain or
// compressed by gzip. The first row names the columns, in any order:
//
//	external_id, platform        required
//	active                       true or false; empty retains the value (true for new channels)
//	latitude, longitude          both or neither; empty clears the location
//	locale, time_zone            empty clears; a time zone is a name of the IANA database
//	attributes, addresses        a JSON object, which replaces the stored object; empty means {}
//	address.<medium>             sets one address; empty removes it
//
// Options.Columns maps other column names to these. Columns that are not in the file retain
// their stored values.
//
// # Invariants
//
//  1. Each batch is one transaction, and a repeated import writes no unchanged row.
//  2. Among rows with the same external_id the last row wins.
//  3. Result counts each row once: Inserted, Updated, Unchanged, Repeated or Rejected.
//  4. The file of rejects can be imported after correction. No cell in it begins like a
//     spreadsheet formula: Import writes an apostrophe before such a cell, and removes it when
//     it reads a file of rejects.
//  5. Memory is bounded by one batch and one record of 1 MiB.
//
// # Failure behaviour
//
// A bad row is rejected with its line and the reason; the other rows are imported. A record
// that encoding/csv rejects is written with the bytes of all its lines. The reason of a record
// of several lines includes these lines, because a stray quote joins everything up to the next
// quote. A quote that is closed neither within 1 MiB nor at the end of the file ends the import
// with the line of its row; earlier rows are imported. If PostgreSQL rejects a batch, Import
// halves it until the bad row is alone. Transient errors repeat a batch up to five times.
package importing
