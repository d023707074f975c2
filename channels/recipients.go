package channels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Recipient has the data of a channel that sending a message needs. Another relation's platform, locale or time zone
// that is longer than belfry.channels accepts (32, 35 and 64 characters) is "", as NULL is. A channel whose addresses have
// more than 64 KiB has none: a batch of such channels would take all memory.
type Recipient struct {
	ID         int64
	ExternalID string // the service's own user id
	Platform   string // "" means unknown
	Active     bool
	Locale     string          // "" means unknown
	TimeZone   string          // "" means unknown
	Attributes json.RawMessage // "{}" if there are none, or if they were not read
	Addresses  json.RawMessage // address by medium
}

// Recipients returns the existing channels among ids, active or not, in no order. It reads one index
// entry per id, or one range of the index if the ids lie close together, whatever the size of
// the relation. Callers read recipients immediately before sending, so that new addresses take effect.
func (s *Store) Recipients(ctx context.Context, q Querier, ids []int64) ([]Recipient, error) {
	return s.readRecipients(ctx, q, ids, true)
}

// RecipientsBare is Recipients without attributes, for content that does not use them.
func (s *Store) RecipientsBare(ctx context.Context, q Querier, ids []int64) ([]Recipient, error) {
	return s.readRecipients(ctx, q, ids, false)
}

// denseRecipients is the largest number of keys per requested id, from the lowest to the highest id, for
// which reading one range costs less than one index scan per id. Other rows of the range are dropped.
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

// Place returns the location of a channel in WGS 84 degrees, or nil if the channel has no location or does
// not exist.
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

// collectRecipients reads the rows of recipients. Equal platforms, locales and time zones share one string.
func collectRecipients(rows pgx.Rows, expected int) ([]Recipient, error) {
	list := make([]Recipient, 0, expected)
	known := make(map[string]string)
	common := func(b []byte, longest int) string {
		b = atMost(b, longest)
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
		// These point into the driver's buffer until the next row.
		external, platform, locale, timeZone, attributes, addresses pgtype.DriverBytes
	)
	_, err := pgx.ForEachRow(rows, []any{&id, &active, &external, &platform, &locale, &timeZone, &attributes, &addresses}, func() error {
		if len(addresses) > longestAddresses {
			addresses = nil
		}
		list = append(list, Recipient{
			ID: id, ExternalID: string(external), Platform: common(platform, longestPlatform), Active: active.Bool,
			Locale: common(locale, LongestLocale), TimeZone: common(timeZone, LongestTimeZone),
			Attributes: objectText(attributes), Addresses: objectText(addresses),
		})
		return nil
	})
	return list, err
}

// objectText returns the JSON of an object, {} for NULL.
func objectText(b []byte) json.RawMessage {
	if len(b) == 0 || string(b) == "{}" {
		return json.RawMessage("{}")
	}
	return bytes.Clone(b)
}
