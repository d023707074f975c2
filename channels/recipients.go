package channels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Recipient is what sending a message to a channel needs to know of it.
type Recipient struct {
	ID         int64
	ExternalID string // the service's own user id
	Platform   string
	Active     bool
	Locale     string          // "": unknown
	TimeZone   string          // "": unknown
	Attributes json.RawMessage // "{}": none, or not read
	Addresses  json.RawMessage // where each medium reaches the channel
}

// Recipients reads those of ids that exist, active or not, in no order: by one look at
// the index each, or one range of it when they lie close together, whatever the size of
// the relation. It reads what is there now, so that a new address counts up to the last
// moment.
func (s *Store) Recipients(ctx context.Context, q Querier, ids []int64) ([]Recipient, error) {
	return s.readRecipients(ctx, q, ids, true)
}

// RecipientsBare is Recipients without their attributes, for content that refers to none.
func (s *Store) RecipientsBare(ctx context.Context, q Querier, ids []int64) ([]Recipient, error) {
	return s.readRecipients(ctx, q, ids, false)
}

// denseRecipients is up to how many keys, for each id that is asked for, may lie between
// the lowest and the highest for one range to cost less than a look-up for each: what lies
// between them is read and dropped.
const denseRecipients = 2

func (s *Store) readRecipients(ctx context.Context, q Querier, ids []int64, withAttributes bool) ([]Recipient, error) {
	each, span := s.sql.recipients, s.sql.recipientsRange
	if s.name != DefaultRelation { // belfry's own has every column
		have, err := s.Columns(ctx, q)
		if err != nil {
			return nil, err
		}
		if err := s.requireColumns(have, Everyone()); err != nil {
			return nil, err
		}
		each, span = s.renderOptional(queries.recipients, have), s.renderOptional(queries.recipientsRange, have)
	}
	sql, args := each, pgx.StrictNamedArgs{"ids": ids, "attributes": withAttributes}
	low, high, dense := denseIn(ids, denseRecipients)
	if dense {
		sql, args = span, pgx.StrictNamedArgs{"low": low, "high": high, "attributes": withAttributes}
	}
	rows, err := q.Query(ctx, sql, args)
	if err != nil {
		return nil, s.wrap("read recipients", err)
	}
	list, err := collectRecipients(rows, len(ids))
	if err != nil {
		return nil, s.wrap("read recipients", err)
	}
	if dense {
		list = among(list, ids, func(r Recipient) int64 { return r.ID })
	}
	return list, nil
}

// Place is where a channel is, in WGS 84 degrees; nil: it has no place, or there is no such
// channel.
func (s *Store) Place(ctx context.Context, q Querier, id int64) (latitude, longitude *float64, err error) {
	have, err := s.Columns(ctx, q)
	if err != nil {
		return nil, nil, err
	}
	if err := s.requireColumns(have, Everyone()); err != nil {
		return nil, nil, err
	}
	err = q.QueryRow(ctx, s.renderOptional(queries.channelPlace, have), pgx.StrictNamedArgs{"id": id}).Scan(&latitude, &longitude)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, nil, s.wrap("read a channel's place", err)
	}
	return latitude, longitude, nil
}

// collectRecipients reads rows that may be many: what the recipients have in common is
// kept once.
func collectRecipients(rows pgx.Rows, expected int) ([]Recipient, error) {
	list := make([]Recipient, 0, expected)
	known := make(map[string]string)
	common := func(b []byte) string {
		s, ok := known[string(b)]
		if !ok {
			s = string(b)
			known[s] = s
		}
		return s
	}
	var (
		id     int64
		active pgtype.Bool
		// What the driver read, until the next row.
		external, platform, locale, timeZone, attributes, addresses pgtype.DriverBytes
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &active, &external, &platform, &locale, &timeZone, &attributes, &addresses}, func() error {
		list = append(list, Recipient{
			ID: id, ExternalID: string(external), Platform: common(platform), Active: active.Bool,
			Locale: common(locale), TimeZone: common(timeZone), Attributes: objectText(attributes), Addresses: objectText(addresses),
		})
		return nil
	})
	return list, err
}

// objectText is the JSON of an object; of none it is an empty one.
func objectText(b []byte) json.RawMessage {
	if len(b) == 0 || string(b) == "{}" {
		return json.RawMessage("{}")
	}
	return bytes.Clone(b)
}
