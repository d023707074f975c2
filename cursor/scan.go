package cursor

import (
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// FromRow reads the position in a row whose first columns are the key columns,
// as SelectList names them; further columns are ignored. It is a pgx.RowToFunc:
//
//	keys, err := pgx.CollectRows(rows, keyset.FromRow)
//
// It refuses a result column of another PostgreSQL type than the keyset's, such
// as a timestamp for a timestamptz. Errors are ErrValue and name the column.
func (k Keyset) FromRow(row pgx.CollectableRow) (Position, error) {
	if err := k.usable(); err != nil {
		return Position{}, err
	}
	fields := row.FieldDescriptions()
	if len(fields) < len(k.columns) {
		return Position{}, fmt.Errorf("%w: the row has %d columns, want first the key columns %s",
			ErrValue, len(fields), k.SelectList())
	}
	for i, c := range k.columns {
		if !slices.Contains(c.Type.oids(), fields[i].DataTypeOID) {
			return Position{}, fmt.Errorf("%w: column %q: want %s, the result column %q has type %s",
				ErrValue, c.Name, c.Type, fields[i].Name, typeName(fields[i].DataTypeOID))
		}
	}
	values, err := row.Values()
	if err != nil {
		return Position{}, fmt.Errorf("cursor: reading the key columns %s: %w", k.SelectList(), err)
	}
	return k.Position(values[:len(k.columns)]...)
}

// oids are the result types a column of type t may come back as.
func (t Type) oids() []uint32 {
	switch t {
	case Bigint:
		return []uint32{pgtype.Int8OID, pgtype.Int4OID, pgtype.Int2OID}
	case Int:
		return []uint32{pgtype.Int4OID, pgtype.Int2OID}
	case UUID:
		return []uint32{pgtype.UUIDOID}
	case Text:
		return []uint32{pgtype.TextOID, pgtype.VarcharOID}
	case Timestamptz:
		return []uint32{pgtype.TimestamptzOID}
	}
	return nil
}

// typeName names a built-in type in an error, and any other by its OID.
func typeName(oid uint32) string {
	if t, ok := pgtype.NewMap().TypeForOID(oid); ok {
		return t.Name
	}
	return fmt.Sprintf("with OID %d", oid)
}
