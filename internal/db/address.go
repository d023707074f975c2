package db

import (
	"errors"
	"net/url"
	"strings"
)

// WithDatabase returns a connection string, URL or keywords, with another database.
func WithDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // the last setting counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the database's address is no URL") // the text may hold a password
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname")
	query.Del("database")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // libpq takes a + for a +
	return u.String(), nil
}
