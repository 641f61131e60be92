package sqlstore

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxkit/outbox-go/outbox"
)

// insertColumns is the number of columns that differ between events; insertTypes are the types of
// the columns that are not texts.
const insertColumns = 9

var insertTypes = [insertColumns]string{5: "JSON", 6: "JSONB", 7: "TIMESTAMPTZ", 8: "TIMESTAMPTZ"}

// insertNulls are the columns that may be NULL: aggregate type and id, tenant and headers. In their
// lists an empty text is NULL. For the other columns PostgreSQL need not look for empty texts.
var insertNulls = [insertColumns]bool{2: true, 3: true, 4: true, 6: true}

// listed says which columns an INSERT gets as lists. The other columns have a single value for all
// rows, which is sent and converted once: most batches have a single type, tenant and time.
type listed struct {
	columns [insertColumns]bool
	leased  bool
}

// separator is between the items of a list. JSON texts never contain it.
const separator = "\x01"

var errSeparator = errors.New("a text contains the separator")

// insertLists is PostgreSQL's INSERT of several rows. The number of parameters does not depend on
// the number of rows, and no value needs to be quoted. insertLists returns errSeparator when a text
// contains the separator.
func (s *Store) insertLists(envs []outbox.Envelope, lease string) (text string, args []any, err error) {
	var first [insertColumns]string
	var columns [insertColumns][]string // of the columns that differ from the first row
	var available, created lastTime
	for i := range envs {
		env := &envs[i]
		headers, err := s.encodeHeaders(env)
		if err != nil {
			return "", nil, err
		}
		values := [insertColumns]string{
			env.EventID, string(env.EventType), string(env.AggregateType), env.AggregateID, env.TenantID, env.Payload.String(), headers,
			available.text(env.AvailableAt), created.text(env.OccurredAt),
		}
		if i == 0 {
			first = values
		}
		for c, value := range values {
			if columns[c] == nil && (c == 0 || value != first[c]) { // ids are unique
				columns[c] = slices.Grow(slices.Repeat(first[c:c+1], i), len(envs)-i)
			}
			if columns[c] != nil {
				columns[c] = append(columns[c], value)
			}
		}
	}
	as := listed{leased: lease != ""}
	args = make([]any, 0, insertColumns+1)
	for c, column := range columns {
		if column == nil {
			args = append(args, nullable(first[c]))
			continue
		}
		as.columns[c] = true
		list := strings.Join(column, separator)
		if strings.Count(list, separator) != len(envs)-1 {
			return "", nil, errSeparator
		}
		args = append(args, list)
	}
	if lease != "" {
		args = append(args, lease)
	}
	return s.listsText(as), args, nil
}

// listsText is the text for [Store.insertLists], built once for each combination of
// columns.
func (s *Store) listsText(as listed) string {
	if text, ok := s.texts().lists.Load(as); ok {
		return text.(string)
	}
	q := s.query(1000).insertInto(s, as.leased).add(") SELECT ")
	var lists []string
	for c, list := range as.columns {
		value := "$" + strconv.Itoa(c+1)
		if list {
			name := string(rune('a' + c))
			null := ""
			if insertNulls[c] {
				null = ", ''"
			}
			lists = append(lists, "unnest(string_to_array("+value+", E'\\x01'"+null+")) AS "+name)
			value = name
		} else {
			value = "CAST(" + value + " AS TEXT)"
		}
		if t := insertTypes[c]; t != "" {
			value = "CAST(" + value + " AS " + t + ")"
			if !list {
				value = "(SELECT " + value + ")" // evaluated once, not for each row
			}
		}
		q.add(value, ", ")
	}
	q.add("0, 0")
	if as.leased {
		q.add(", CAST(", "$"+strconv.Itoa(insertColumns+1), " AS TEXT), ").now()
	}
	// An unnest of several lists in FROM would first store all rows, and read them again.
	q.add(" FROM (SELECT ", strings.Join(lists, ", "), ") AS r")
	text := q.text()
	s.texts().lists.Store(as, text)
	return text
}

// lastTime caches the text of a time: the events of a write mostly have the same time.
type lastTime struct {
	at  time.Time
	arg string
}

func (l *lastTime) text(t time.Time) string {
	if l.arg == "" || !t.Equal(l.at) {
		l.at, l.arg = t, postgres.timeArg(t).(string)
	}
	return l.arg
}
