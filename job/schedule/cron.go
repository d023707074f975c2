package schedule

import (
	"fmt"
	"strconv"
	"strings"
)

// plainCron returns a cron expression with one blank between its fields, and a word such as @Daily or
// @midnight as robfig/cron has it.
func plainCron(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) != 1 {
		return strings.Join(words, " ")
	}
	switch word := strings.ToLower(words[0]); word {
	case "@midnight":
		return "@daily"
	case "@annually":
		return "@yearly"
	default:
		return word
	}
}

// cronBounds are the fields' names, and the lowest and highest value of each.
var cronBounds = [5]struct {
	name      string
	low, high int
	words     []string
}{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, []string{"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}},
	{"day of week", 0, 6, []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}},
}

// cronValue is a number or a name of field i; -1 if it is neither.
func cronValue(i int, text string) int {
	if n, err := strconv.Atoi(text); err == nil {
		return n
	}
	for n, word := range cronBounds[i].words {
		if strings.EqualFold(word, text) {
			return n + cronBounds[i].low
		}
	}
	return -1
}

// cronPartOf splits a part of field i into its range and step; 0 is no step.
func cronPartOf(i int, part string) (first, last, step int) {
	span, by, stepped := strings.Cut(part, "/")
	from, to, ranged := strings.Cut(span, "-")
	first, last = cronValue(i, from), cronValue(i, to)
	switch {
	case from == "*":
		first, last = cronBounds[i].low, cronBounds[i].high
	case !ranged && stepped:
		last = cronBounds[i].high
	case !ranged:
		last = first
	}
	step, _ = strconv.Atoi(by) // the shape has checked it
	return first, last, step
}

// checkSteps refuses a step that is longer than its range: */90 of the minutes would be each hour.
func checkSteps(fields []string) error {
	for i, field := range fields {
		for part := range strings.SplitSeq(field, ",") {
			if first, last, step := cronPartOf(i, part); first >= 0 && step > max(last-first, 1) {
				return fmt.Errorf("the step of %q in the %s is longer than its range, %d to %d", part, cronBounds[i].name, first, last)
			}
		}
	}
	return nil
}

// plainDays returns days of the week with 7, which crontabs have for Sunday, as 0. robfig/cron knows
// 0 to 6 only.
func plainDays(field string) string {
	parts := strings.Split(field, ",")
	for i, part := range parts {
		first, last, step := cronPartOf(4, part)
		if last != 7 || first < 0 || first > 7 {
			continue
		}
		var days []string
		for d := first; d <= last; d += max(step, 1) {
			days = append(days, strconv.Itoa(d%7))
		}
		if step == 0 && strings.Contains(part, "/") {
			continue // a step of 0, which robfig/cron refuses
		}
		parts[i] = strings.Join(days, ",")
	}
	return strings.Join(parts, ",")
}
