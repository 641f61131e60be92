package sqstest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// Message is a message that a server has stored.
type Message struct {
	ID            string
	Body          string
	Attributes    map[string]string
	Group         string    `json:",omitempty"`
	Deduplication string    `json:",omitempty"`
	Stored        time.Time `json:"stored"`
}

// Queue is a queue. The messages are lines of a file.
type Queue struct {
	Name string
	// MaxMessage is the most bytes of a message, and MaxRequest of all messages of a request.
	MaxMessage, MaxRequest int

	mu    sync.Mutex
	path  string
	file  *os.File
	known map[string]Message // by deduplication id
	count int
}

// window is how long a FIFO queue drops messages with a deduplication id that it knows.
const window = 5 * time.Minute

// Open opens a queue with the messages of its file, without a line that was not written to the end.
func Open(dir, name string, maxMessage, maxRequest int) (*Queue, error) {
	q := &Queue{Name: name, MaxMessage: maxMessage, MaxRequest: maxRequest, path: filepath.Join(dir, name+".jsonl"), known: map[string]Message{}}
	stored, whole, err := read(q.path)
	if err != nil {
		return nil, err
	}
	for _, m := range stored {
		q.remember(m)
	}
	q.count = len(stored)
	if q.file, err = os.OpenFile(q.path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, err
	}
	if err := q.file.Truncate(whole); err != nil {
		return nil, err
	}
	_, err = q.file.Seek(whole, 0)
	return q, err
}

// FIFO reports whether the queue is a FIFO queue.
func (q *Queue) FIFO() bool { return strings.HasSuffix(q.Name, ".fifo") }

func (q *Queue) remember(m Message) {
	if m.Deduplication != "" {
		q.known[m.Deduplication] = m
	}
}

// Store stores a message and returns the id of the message, or of the message that the queue has
// with the same deduplication id.
func (q *Queue) Store(m Message) (id string, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if earlier, has := q.known[m.Deduplication]; has && m.Deduplication != "" && time.Since(earlier.Stored) < window {
		return earlier.ID, nil
	}
	q.count++
	m.ID, m.Stored = fmt.Sprintf("%08d-0000-4000-8000-000000000000", q.count), time.Now()
	line, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	if _, err := q.file.Write(append(line, '\n')); err != nil {
		return "", err
	}
	q.remember(m)
	return m.ID, nil
}

// Stored reads the messages of a queue from the folder of a server.
func Stored(dir, name string) ([]Message, error) {
	list, _, err := read(filepath.Join(dir, name+".jsonl"))
	return list, err
}

// read reads the messages of a file, and returns how many bytes whole lines have.
func read(path string) (list []Message, whole int64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return list, whole, nil //nolint:nilerr // the end, or a line that was not written to the end
		}
		var m Message
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, 0, err
		}
		list, whole = append(list, m), whole+int64(len(line))
	}
}

// Check returns the code and the text with which the service refuses a message, or empty texts.
func (q *Queue) Check(m Message, size int) (code, text string) {
	bad := func(format string, args ...any) (string, string) {
		return "InvalidParameterValue", fmt.Sprintf(format, args...)
	}
	switch {
	case m.Body == "":
		return "MissingParameter", "The request must contain the parameter MessageBody."
	case !valid(m.Body):
		return "InvalidMessageContents", "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF."
	case size > q.MaxMessage:
		return bad("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", q.MaxMessage)
	case len(m.Attributes) > 10:
		return bad("Number of message attributes [%d] exceeds the allowed maximum [10].", len(m.Attributes))
	case q.FIFO() && m.Group == "":
		return "MissingParameter", "The request must contain the parameter MessageGroupId."
	case q.FIFO() && m.Deduplication == "":
		return bad("The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly")
	case q.FIFO() && (!token(m.Group) || !token(m.Deduplication)):
		return bad("MessageGroupId and MessageDeduplicationId can only include alphanumeric and punctuation characters. 1 to 128 in length")
	case !q.FIFO() && m.Deduplication != "":
		return bad("The request include parameter that is not valid for this queue type")
	}
	for name, value := range m.Attributes {
		switch {
		case !attributeName(name):
			return bad("The message attribute name %q is invalid.", name)
		case value == "":
			return bad("The message attribute %q must contain a non-empty value.", name)
		case !valid(value):
			return bad("The message attribute %q has invalid characters.", name)
		}
	}
	return "", ""
}

func valid(text string) bool {
	for _, r := range text {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF {
			return false
		}
	}
	return utf8.ValidString(text)
}

func token(text string) bool {
	return len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

func attributeName(name string) bool {
	lower := strings.ToLower(name)
	return name != "" && len(name) <= 256 && !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.") &&
		!strings.HasPrefix(name, ".") && !strings.HasSuffix(name, ".") && !strings.Contains(name, "..") &&
		!strings.ContainsFunc(lower, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
		})
}
