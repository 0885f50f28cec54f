-- A service's database of revision 0002: a user, a model, and a job with a target in milliseconds.
PRAGMA journal_mode=WAL;
BEGIN TRANSACTION;
CREATE TABLE service_alembic (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT service_alembic_pkc PRIMARY KEY (version_num)
);
INSERT INTO "service_alembic" VALUES('0002');
CREATE TABLE service_audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	user INTEGER, 
	token INTEGER, 
	address VARCHAR(64) NOT NULL, 
	action VARCHAR(32) NOT NULL, 
	subject VARCHAR(128) NOT NULL, 
	details TEXT NOT NULL, 
	CONSTRAINT pk_service_audit PRIMARY KEY (id)
);
CREATE TABLE service_calls (
	id INTEGER NOT NULL, 
	job VARCHAR(16) NOT NULL, 
	url TEXT NOT NULL, 
	attempts INTEGER NOT NULL, 
	due DOUBLE, 
	outcome TEXT NOT NULL, 
	CONSTRAINT pk_service_calls PRIMARY KEY (id), 
	CONSTRAINT fk_service_calls_job FOREIGN KEY(job) REFERENCES service_jobs (id)
);
CREATE TABLE service_device_types (
	name VARCHAR(64) NOT NULL, 
	machine VARCHAR(64) NOT NULL, 
	about TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_service_device_types PRIMARY KEY (name)
);
CREATE TABLE service_jobs (
	id VARCHAR(16) NOT NULL, 
	owner INTEGER NOT NULL, 
	model INTEGER NOT NULL, 
	wanted TEXT NOT NULL, 
	priority DOUBLE NOT NULL, 
	share BOOLEAN NOT NULL, 
	minutes DOUBLE NOT NULL, 
	idempotency_key VARCHAR(128), 
	retry_of VARCHAR(16), 
	state VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	run_id VARCHAR(64), 
	progress TEXT, 
	report VARCHAR(64), 
	executable VARCHAR(64), 
	log VARCHAR(64), 
	created DOUBLE NOT NULL, 
	started DOUBLE, 
	ended DOUBLE, 
	CONSTRAINT pk_service_jobs PRIMARY KEY (id), 
	CONSTRAINT fk_service_jobs_owner FOREIGN KEY(owner) REFERENCES service_users (id), 
	CONSTRAINT fk_service_jobs_model FOREIGN KEY(model) REFERENCES service_models (id), 
	CONSTRAINT fk_service_jobs_retry_of FOREIGN KEY(retry_of) REFERENCES service_jobs (id), 
	CONSTRAINT uq_service_jobs_owner UNIQUE (owner, idempotency_key)
);
INSERT INTO "service_jobs" VALUES('b50d8dcc451d',1,1,'{"device": "local-cpu", "minutes": 2.0, "trials": null, "priority": 1.0, "shapes": {}, "constants": {}, "seed": 0, "webhook": null, "share": false, "search": true, "onnxruntime": true, "other_shapes": "refuse", "precision": "fp32", "max_error": null, "target_ms": 8.5}',1.0,0,2.0,NULL,NULL,'queued','',NULL,NULL,NULL,NULL,NULL,1000.0,NULL,NULL);
CREATE TABLE service_machines (
	name VARCHAR(64) NOT NULL, 
	token INTEGER NOT NULL, 
	identity VARCHAR(128) NOT NULL, 
	offer TEXT NOT NULL, 
	joined DOUBLE NOT NULL, 
	CONSTRAINT pk_service_machines PRIMARY KEY (name), 
	CONSTRAINT fk_service_machines_token FOREIGN KEY(token) REFERENCES service_tokens (id), 
	CONSTRAINT uq_service_machines_token UNIQUE (token)
);
CREATE TABLE service_models (
	id INTEGER NOT NULL, 
	owner INTEGER NOT NULL, 
	name VARCHAR(128) NOT NULL, 
	file VARCHAR(64) NOT NULL, 
	size BIGINT NOT NULL, 
	findings TEXT, 
	created DOUBLE NOT NULL, 
	expires DOUBLE, 
	deleted DOUBLE, 
	CONSTRAINT pk_service_models PRIMARY KEY (id), 
	CONSTRAINT fk_service_models_owner FOREIGN KEY(owner) REFERENCES service_users (id), 
	CONSTRAINT uq_service_models_owner UNIQUE (owner, file)
);
INSERT INTO "service_models" VALUES(1,1,'net','0000000000000000000000000000000000000000000000000000000000000000',5,NULL,100.0,NULL,NULL);
CREATE TABLE service_steps (
	job VARCHAR(16) NOT NULL, 
	seq INTEGER NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	reason TEXT NOT NULL, 
	at DOUBLE NOT NULL, 
	CONSTRAINT pk_service_steps PRIMARY KEY (job, seq), 
	CONSTRAINT fk_service_steps_job FOREIGN KEY(job) REFERENCES service_jobs (id)
);
INSERT INTO "service_steps" VALUES('b50d8dcc451d',0,'queued','',1000.0);
CREATE TABLE service_tokens (
	id INTEGER NOT NULL, 
	user INTEGER NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	hint VARCHAR(16) NOT NULL, 
	label VARCHAR(64) NOT NULL, 
	scope VARCHAR(16) NOT NULL, 
	created DOUBLE NOT NULL, 
	expires DOUBLE, 
	revoked DOUBLE, 
	used DOUBLE, 
	CONSTRAINT pk_service_tokens PRIMARY KEY (id), 
	CONSTRAINT fk_service_tokens_user FOREIGN KEY(user) REFERENCES service_users (id), 
	CONSTRAINT uq_service_tokens_hash UNIQUE (hash)
);
INSERT INTO "service_tokens" VALUES(1,1,'871b85794b82ec8f1e856280baaabd3215f31eebc5814259d747ea392cb54b80','kt_oy4Upu','','submit',100.0,NULL,NULL,200.0);
CREATE TABLE service_users (
	id INTEGER NOT NULL, 
	name VARCHAR(64) NOT NULL, 
	quota TEXT NOT NULL, 
	disabled BOOLEAN NOT NULL, 
	created DOUBLE NOT NULL, 
	CONSTRAINT pk_service_users PRIMARY KEY (id), 
	CONSTRAINT uq_service_users_name UNIQUE (name)
);
INSERT INTO "service_users" VALUES(1,'anna','{"jobs":20,"upload_mb":2048,"minutes":1440.0}',0,100.0);
CREATE TABLE service_wishes (
	id INTEGER NOT NULL, 
	job VARCHAR(16) NOT NULL, 
	wish VARCHAR(16) NOT NULL, 
	value DOUBLE, 
	at DOUBLE NOT NULL, 
	granted DOUBLE, 
	CONSTRAINT pk_service_wishes PRIMARY KEY (id), 
	CONSTRAINT fk_service_wishes_job FOREIGN KEY(job) REFERENCES service_jobs (id)
);
CREATE INDEX ix_service_tokens_user ON service_tokens (user);
CREATE INDEX ix_service_models_file ON service_models (file);
CREATE INDEX ix_service_jobs_owner_created ON service_jobs (owner, created);
CREATE INDEX ix_service_jobs_state ON service_jobs (state);
CREATE INDEX ix_service_wishes_granted ON service_wishes (granted);
CREATE INDEX ix_service_calls_due ON service_calls (due);
CREATE INDEX ix_service_audit_at ON service_audit (at);
COMMIT;
PRAGMA user_version=6;
