mod controller;
mod insertion;
mod properties;
