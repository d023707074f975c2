package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/internal/printer"
	"github.com/belfryhq/belfry/job"
)

// What the flags for content take, for help and errors.
const (
	dataWants     = "JSON objects of up to 16384 bytes"
	variantsWants = `JSON objects of up to 131072 bytes, as {"ko": {"title": "…", "body": "…"}}, or a FILE with one`
)

// maxVariantsFile bounds a file of variants, before the database says what is too much.
const maxVariantsFile = 1 << 20

// addVariants adds --variants; prefix stands before its explanation.
func addVariants(cmd *cobra.Command, prefix string) *string {
	return cmd.Flags().String("variants", "", prefix+"titles and bodies by locale, as `JSON` {\"ko\": {\"title\": \"…\", \"body\": \"…\"}}, or a file with it")
}

// addRoute adds --route. Without it the value is nil, which takes the category's.
func addRoute(cmd *cobra.Command) *parsed[[]string] {
	return flagOf(cmd.Flags(), "route", "MEDIA", "media in the order in which they are tried, as push,sms (default: the category's)", parseRoute)
}

// parseRoute splits a list of media. Which there are is the database's to say.
func parseRoute(text string) ([]string, error) {
	route := strings.Split(text, ",")
	for i := range route {
		route[i] = strings.TrimSpace(route[i])
	}
	return route, nil
}

// dataOf parses what --data was given.
func dataOf(text string) (json.RawMessage, error) {
	if !isObject([]byte(text)) {
		return nil, usagef("invalid argument %q for \"--data\" flag: allowed values: %s", printer.OneLine(text, 60), dataWants)
	}
	return json.RawMessage(text), nil
}

// variantsOf parses what --variants was given.
func variantsOf(text string) (json.RawMessage, error) {
	variants, err := readVariants(text)
	switch {
	case errors.Is(err, errNotAllowed):
		return nil, usagef("invalid argument %q for \"--variants\" flag: allowed values: %s", printer.OneLine(text, 60), variantsWants)
	case err != nil:
		return nil, usagef("--variants: %w; allowed values: %s", err, variantsWants)
	}
	return variants, nil
}

// readVariants takes JSON as it is, and any other text as the name of a file with it.
func readVariants(text string) (json.RawMessage, error) {
	content := []byte(text)
	if start := strings.TrimSpace(text); start == "" {
		return nil, errNotAllowed
	} else if !strings.ContainsAny(start[:1], `{["`) {
		file, err := os.Open(text)
		if err != nil {
			return nil, err
		}
		defer file.Close() //nolint:errcheck // it was only read
		if content, err = io.ReadAll(io.LimitReader(file, maxVariantsFile+1)); err != nil {
			return nil, err
		}
		if len(content) > maxVariantsFile {
			return nil, fmt.Errorf("%s has more than %d bytes", printer.OneLine(text, 60), maxVariantsFile)
		}
	}
	if !isObject(content) {
		return nil, errNotAllowed
	}
	return json.RawMessage(content), nil
}

var errNotAllowed = errors.New("not allowed")

func isObject(text []byte) bool {
	var object map[string]json.RawMessage
	return json.Unmarshal(text, &object) == nil && object != nil
}

// columnFlags are the flags that fill the columns of a job or an activity.
var columnFlags = map[string]string{
	"schedule_at": "at", "deliver_at": "deliver-at", "expires_at": "expires-at", "idempotency_key": "idempotency-key", "requested_by": "requested-by",
	"type": "type", "category": "category", "title": "title", "body": "body", "data": "data", "variants": "variants", "route": "route",
	"lane": "lane", "priority": "priority",
}

// refused names the flag at fault for what the database refused about a row of a table.
func refused(table string, invalid *job.InvalidError) error {
	text := strings.TrimPrefix(invalid.Message, "belfry."+table+".")
	flag := "--" + columnFlags[invalid.Column]
	if flag == "--" {
		flag = invalid.Column
	}
	if path, problem, ok := strings.Cut(text, ": "); ok {
		text = problem
		if within, ok := strings.CutPrefix(path, "variants."); ok {
			text = within + ": " + problem
		}
	}
	return &exitError{codeUsage, errors.New(withHint(flag+": "+text, invalid.Hint))}
}
