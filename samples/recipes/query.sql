-- name: CreateOrder :exec
INSERT INTO orders (id, item) VALUES ($1, $2);
