// Package cursor walks a relation by keyset: in the order of one or more
// unique, NOT NULL key columns, a slice at a time, up to a bound that was
// frozen when the walk began.
//
// A walk is two positions in a keyset:
//
//	start        cursor                       bound
//	  │ committed  │  next chunk   │            │
//	  ├────────────┤◄─────────────►│            │   keys added later
//	──┴────────────┴───────────────┴────────────┴──────────────────► keys
//	               (cursor, bound], ORDER BY keyset, LIMIT n
//
// The cursor is the key of the last committed row; its zero value is the start,
// before every key. The bound is the highest key at the moment the walk began.
// Keyset.Window renders the open-closed interval between the two as a
// predicate, Keyset.OrderBy the order, and Keyset.Encode the text under which a
// Position is stored. The package runs no SQL and holds no state: the caller
// reads, commits and stores.
//
// # Invariants
//
// With each chunk read as Window(cursor, bound), ordered by OrderBy, limited to
// any positive number of rows, and the cursor then set to the key of the last
// row read, until a read returns no row:
//
//  1. Nothing is read twice: a chunk holds only keys above the cursor.
//  2. Nothing is skipped: a row at or below the bound that exists from the
//     start of the walk until its chunk is read is read.
//  3. The walk ends: no chunk reads above the bound, so rows added ahead of it
//     cannot keep the walk going. A row added at or below the bound is read if
//     it lies ahead of the cursor and missed if it lies behind. A row deleted
//     ahead of the cursor is not read; deleting the row the cursor or the bound
//     stands on changes nothing, since both are values, not references.
//  4. Encode and Decode are inverse, and Decode accepts only what Encode
//     writes, so two encodings are equal exactly when their positions are.
//  5. Compare orders positions as PostgreSQL orders rows under OrderBy.
//
// They rest on a contract the relation keeps and this package cannot check: the
// key columns together are unique, are NOT NULL and never change. A row whose
// key contains NULL is in no window. A row whose key changes during a walk can
// be read twice or not at all.
//
// # Order and index
//
// All columns ascend. Text is compared under COLLATE "C", by bytes, on both
// sides of the predicate and in ORDER BY: the order then depends on neither the
// database's locale nor a libc or ICU upgrade in the middle of a walk. A chunk
// costs in proportion to its own rows only with a B-tree index on the same
// columns in the same sequence; for a text column the index has to be built on
// the column COLLATE "C", or the column declared so. Without it the result is
// the same and every chunk sorts the relation.
//
// Invariant 5 supposes the server encoding UTF8 for text. In another multibyte
// encoding PostgreSQL's order and Compare's can differ. The walk itself does
// not use Compare.
//
// # Failure behaviour
//
// Whatever comes from outside is answered with an error that names the column:
// a NULL, a value of another type or out of range (ErrValue), a stored text
// that Encode did not write (ErrMalformed), a malformed keyset (ErrKeyset).
// Handing a Keyset a Position of another keyset is a programming error: Check
// reports it, and Encode, Compare and Window panic with the same error rather
// than send a walk to the wrong place.
//
// # What it does not promise
//
// The stored text and String contain key values. A relation keyed by an
// address puts addresses there. Descending or mixed order, NULLs, float and
// numeric keys, and collations other than "C" are not supported.
package cursor
