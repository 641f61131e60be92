package httptx_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outboxkit/outbox-go/httptx"
	"github.com/outboxkit/outbox-go/outbox"
)

// beginning records how much of a body is left when a transaction begins.
type beginning struct {
	outbox.Transactor
	body *strings.Reader
	left int
}

func (b *beginning) Begin(ctx context.Context, opts *sql.TxOptions) (context.Context, outbox.Transaction, error) {
	b.left = b.body.Len()
	return b.Transactor.Begin(ctx, opts)
}

// failsOnce fails, and is at its end then.
type failsOnce struct{ err error }

func (f *failsOnce) Read([]byte) (int, error) {
	err := f.err
	f.err = io.EOF
	return 0, err
}

// The middleware waits for a slow client without a transaction, and the handler
// reads the body as it was sent.
func TestTheBodyIsReadBeforeTheTransactionBegins(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		readBody int64
		left     int
		broken   error
	}{
		"nothing by default":                   {0, 10, nil},
		"the beginning":                        {4, 6, nil},
		"just all":                             {10, 0, nil},
		"all":                                  {100, 0, nil},
		"a body that fails":                    {100, 0, errTest},
		"one that fails later than it is read": {4, 6, errTest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			transactor := &beginning{Transactor: failing{}, body: strings.NewReader("0123456789")}
			mw, err := httptx.TransactionConfig{Transactor: transactor, ReadBody: tc.readBody}.ToMiddleware()
			require.NoError(t, err)
			handler := mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				read, err := io.ReadAll(r.Body)
				if string(read) != "0123456789" || !errors.Is(err, tc.broken) || r.Body.Close() != nil {
					t.Errorf("%q %v", read, err)
				}
				w.WriteHeader(http.StatusCreated)
			}))
			body := io.Reader(transactor.body)
			if tc.broken != nil {
				body = io.MultiReader(body, &failsOnce{err: tc.broken})
			}
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			require.Equal(t, 201, recorder.Code)
			require.Equal(t, tc.left, transactor.left)
		})
	}
}

func TestARequestWithoutABodyHasNoneToRead(t *testing.T) {
	t.Parallel()
	mw, err := httptx.TransactionConfig{Transactor: failing{}, ReadBody: 10}.ToMiddleware()
	require.NoError(t, err)
	server := httptest.NewServer(mw(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			w.WriteHeader(http.StatusCreated)
		}
	})))
	defer server.Close()
	response, err := server.Client().Post(server.URL, "", nil)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, 201, response.StatusCode)
}
