package sqstest

import (
	"crypto/md5" //nolint:gosec // the protocol's checksum
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Server is a server with queues. It speaks the JSON protocol of SQS.
type Server struct {
	dir string

	mu     sync.Mutex
	queues map[string]*Queue
}

// New makes a server that keeps the queues in a folder.
func New(dir string, queues ...string) (*Server, error) {
	s := &Server{dir: dir, queues: map[string]*Queue{}}
	for _, name := range queues {
		if _, err := s.Create(name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Create makes a queue with the limits of SQS.
func (s *Server) Create(name string) (*Queue, error) {
	q, err := Open(s.dir, name, 1<<20, 1<<20)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[name] = q
	return q, nil
}

func (s *Server) queue(name string) *Queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queues[name]
}

// Stored are the messages of a queue.
func (s *Server) Stored(name string) ([]Message, error) { return Stored(s.dir, name) }

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	action, ours := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.")
	switch {
	case !ours || r.Header.Get("Content-Type") != "application/x-amz-json-1.0":
		Fail(w, http.StatusBadRequest, "InvalidAction", "This server speaks AWS JSON 1.0 of AmazonSQS alone.")
		return
	case !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="):
		Fail(w, http.StatusForbidden, "MissingAuthenticationToken", "Request is missing Authentication Token")
		return
	}
	var request struct {
		QueueName, QueueUrl string //nolint:revive // the protocol's name
		MaxResults          int
		Entries             []sqsEntry
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		Fail(w, http.StatusBadRequest, "MalformedInput", err.Error())
		return
	}
	switch action {
	case "ListQueues":
		succeed(w, map[string]any{"QueueUrls": []string{}})
	case "GetQueueUrl":
		if s.queue(request.QueueName) == nil {
			missing(w)
			return
		}
		succeed(w, map[string]any{"QueueUrl": "http://" + r.Host + "/000000000000/" + request.QueueName})
	case "SendMessageBatch":
		q := s.queue(path.Base(request.QueueUrl))
		if q == nil {
			missing(w)
			return
		}
		sendBatch(w, q, request.Entries)
	default:
		Fail(w, http.StatusBadRequest, "InvalidAction", "The action "+action+" is not valid for this endpoint.")
	}
}

func missing(w http.ResponseWriter) {
	w.Header().Set("X-Amzn-Query-Error", "AWS.SimpleQueueService.NonExistentQueue;Sender")
	Fail(w, http.StatusBadRequest, "QueueDoesNotExist", "The specified queue does not exist.")
}

// Fail answers with an error of the service.
func Fail(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, map[string]string{"__type": "com.amazonaws.sqs#" + code, "message": message})
}

func succeed(w http.ResponseWriter, body any) { answer(w, http.StatusOK, body) }

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.Header().Set("X-Amzn-Requestid", "00000000-0000-4000-8000-000000000000")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// sqsEntry is a message of a request.
type sqsEntry struct {
	ID                     string `json:"Id"`
	MessageBody            string
	MessageAttributes      map[string]struct{ DataType, StringValue string }
	MessageGroupID         string `json:"MessageGroupId"`
	MessageDeduplicationID string `json:"MessageDeduplicationId"`
}

// message is the message of an entry, and how many bytes count.
func (e sqsEntry) message() (m Message, size int) {
	m = Message{Body: e.MessageBody, Attributes: map[string]string{}, Group: e.MessageGroupID, Deduplication: e.MessageDeduplicationID}
	size = len(e.MessageBody)
	for name, a := range e.MessageAttributes {
		m.Attributes[name] = a.StringValue
		size += len(name) + len(a.DataType) + len(a.StringValue)
	}
	return m, size
}

// Failed is the answer for a message that was not stored.
type Failed struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

var entryID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

func sendBatch(w http.ResponseWriter, q *Queue, entries []sqsEntry) {
	if code, text := checkBatch(q, entries); code != "" {
		Fail(w, http.StatusBadRequest, code, text)
		return
	}
	stored, failed := []map[string]string{}, []Failed{}
	for _, e := range entries {
		m, size := e.message()
		if code, text := q.Check(m, size); code != "" {
			failed = append(failed, Failed{e.ID, code, text, true})
			continue
		}
		id, err := q.Store(m)
		if err != nil {
			failed = append(failed, Failed{e.ID, "InternalError", err.Error(), false})
			continue
		}
		stored = append(stored, map[string]string{
			"Id": e.ID, "MessageId": id, "MD5OfMessageBody": checksum([]byte(e.MessageBody)), "MD5OfMessageAttributes": attributesChecksum(e),
		})
	}
	succeed(w, map[string]any{"Successful": stored, "Failed": failed})
}

// checkBatch returns the code and the text with which SQS refuses a whole request.
func checkBatch(q *Queue, entries []sqsEntry) (code, text string) {
	const most = 10
	switch {
	case len(entries) == 0:
		return "EmptyBatchRequest", "There should be at least one SendMessageBatchRequestEntry in the request."
	case len(entries) > most:
		return "TooManyEntriesInBatchRequest", fmt.Sprintf("Maximum number of entries per request are 10. You have sent %d.", len(entries))
	}
	seen, total := map[string]bool{}, 0
	for _, e := range entries {
		if !entryID.MatchString(e.ID) {
			return "InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
		}
		if seen[e.ID] {
			return "BatchEntryIdsNotDistinct", "Id " + e.ID + " repeated."
		}
		seen[e.ID] = true
		_, size := e.message()
		total += size
		for name, a := range e.MessageAttributes {
			if a.DataType != "String" {
				return "InvalidParameterValue", "The type of message attribute " + name + " is not String."
			}
		}
	}
	if total > q.MaxRequest {
		return "BatchRequestTooLong", fmt.Sprintf("Batch requests cannot be longer than %d bytes. You have sent %d bytes.", q.MaxRequest, total)
	}
	return "", ""
}

func checksum(text []byte) string {
	sum := md5.Sum(text) //nolint:gosec // the protocol's checksum
	return hex.EncodeToString(sum[:])
}

// attributesChecksum is the checksum of the attributes, as SQS documents it.
func attributesChecksum(e sqsEntry) string {
	var text []byte
	add := func(part string) {
		text = append(binary.BigEndian.AppendUint32(text, uint32(len(part))), part...) //nolint:gosec // a part of a request is small
	}
	for _, name := range slices.Sorted(maps.Keys(e.MessageAttributes)) {
		add(name)
		add(e.MessageAttributes[name].DataType)
		text = append(text, 1)
		add(e.MessageAttributes[name].StringValue)
	}
	return checksum(text)
}
